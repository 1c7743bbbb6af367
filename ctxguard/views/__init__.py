"""Views of texts within a limit of tokens, by the type of the text. The public names are in `ctxguard.content`."""
