"""What `ctxguard bench` compares: a module drives one library and is loaded only where that is installed."""
