"""Rules as data: the library's rules by topic and country, and the context words they need."""
