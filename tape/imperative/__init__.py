"""The imperative face: tensors that keep their gradients, `backward`, functions and modules, over the one tape."""
