"""An audit as people read it: who is suspect, why a client was left out, and who went into each model."""
