"""The compiler of fused kernels: a whole run as one CUDA or C kernel."""
