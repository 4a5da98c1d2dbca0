"""Which drafts are accepted: vSpec's verification where it gives what the host would, or what an option asks."""
