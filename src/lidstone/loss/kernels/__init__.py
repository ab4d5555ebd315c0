"""The loss and its gradient: `cpu`, `triton`, and `tensors` for every other device, behind one `protocol`."""
