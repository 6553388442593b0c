"""Strategies and properties for whoever writes a method, a family, a format or an executor."""
