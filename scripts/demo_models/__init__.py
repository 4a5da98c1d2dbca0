"""Makes the demo's drafters: corpus, training, export and evaluation of a draft model and an EAGLE head."""
