"""Tables made from tables: linear mixtures of several, and smaller ones by entropy pruning."""
