"""Integrations of the samplers into other libraries. Each module needs its host library, so none is imported here."""
