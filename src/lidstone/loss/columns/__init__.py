"""The loss from some columns of the logits: class weights, and vocabularies divided among processes."""
