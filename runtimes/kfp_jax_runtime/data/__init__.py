"""MNIST and Fashion-MNIST as tensorflow-datasets files, made without TensorFlow.

`kfp_jax_runtime.data.prepare` is the program that writes a dataset;
`kfp_jax_runtime.data.store.load` reads one into memory.
"""
