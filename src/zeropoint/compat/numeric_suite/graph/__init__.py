"""The numeric suite for traced graphs: layers of two graphs are matched, and their weights and results compared."""
