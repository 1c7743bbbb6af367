"""Read files safely as bounded views, documents in a separate process. The public names are in `ctxguard.content`."""
