"""Workers, machines and finalizers as they announce themselves, and the models that open runs need."""
