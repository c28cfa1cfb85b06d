"""Using what was trained: rows to embeddings at one company, to scores at the other, of whole files or one by one."""
