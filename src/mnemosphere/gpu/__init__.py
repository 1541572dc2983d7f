"""All that knows Triton or CUDA graphs, on plain tensors: a pass in few kernels, captured calls."""
