"""One processor a module: each reads a source of its type once and shows it in any size."""
