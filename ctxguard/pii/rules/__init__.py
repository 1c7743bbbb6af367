"""Rules as data: what is the same everywhere, phones, credentials, countries, and the words around them."""
