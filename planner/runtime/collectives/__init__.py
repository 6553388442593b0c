"""All-reduces over gloo: its ring, and any collective program, including BML's."""
