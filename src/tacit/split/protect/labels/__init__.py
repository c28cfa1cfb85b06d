"""What a label party does to its labels, once, before any loss is computed."""
