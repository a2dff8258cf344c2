"""From an annotated, calibrated graph to operators on integers, or to a reference graph."""
