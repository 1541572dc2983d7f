"""Layer 0: special functions, the sphere, the transportation polytope, vMF sampling."""
