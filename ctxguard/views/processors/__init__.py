"""The processors, one module for each group of types. Each parses a source once and shows it in any size."""
