"""Files, schema, machine, text: what everything else uses and nothing of the subject."""
