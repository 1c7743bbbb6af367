"""The processors, one per module. Each parses a source of its type once and shows it in any size."""
