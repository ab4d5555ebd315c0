"""Tables in fewer bytes: quantised values, bit-packed words and pointers, and how compiled code reads them."""
