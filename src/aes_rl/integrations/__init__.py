"""Our samplers inside other libraries; each module is imported only when asked for."""
