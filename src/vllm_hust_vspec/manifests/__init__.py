"""The static extension manifest that an Extension Manager reads without importing anything."""
