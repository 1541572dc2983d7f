"""Bessel ratios, the sphere, the transportation polytope, von Mises–Fisher sampling."""
