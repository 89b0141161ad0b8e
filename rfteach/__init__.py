"""Random features and large-scale kernel learning: the library exported from the course's notebooks."""

__version__ = "0.1.0"

from importlib import import_module

_PUBLIC = {
    "arrays": ["Like", "as_tensor", "memory_budget", "random_generator", "row_blocks"],
    "datasets": ["fetch", "gaussian_bump", "ishigami", "load_mnist", "load_propulsion", "load_regression", "sobol_g"],
    "plots": ["fit_rate", "plot_rate", "set_style", "show_gram"],
    "kernels": ["Cauchy", "Gaussian", "Laplacian", "Laplacian1", "Matern", "gram_blocks"],
    "features": ["RandomFourierFeatures", "fourier_features", "sample_frequencies"],
    "ridge": ["RandomFeatureRidge", "RandomFeatureRidgeClassifier", "StreamingRidge", "loo_error", "pinv_solve",
              "process_group", "ridge_path"],
    "selection": ["choose"],
    "bandwidth": ["learn_bandwidth", "median_bandwidth"],
    "rbf": ["NystroemFeatures", "RBFRegressor"],
    "orderq": ["SRFERegressor", "basis_pursuit_denoising", "feature_matrix", "n_features_bound", "n_samples_bound",
               "sparse_frequencies"],
    "pursuit": ["HARFERegressor", "cosamp", "harfe", "htp", "omp"],
    "eigenpro": ["EigenProClassifier", "EigenProRegressor", "eigenpro_step", "preconditioner", "top_eigensystem"],
    "pca": ["GradientPCA", "reconstruction_error", "reconstruction_gradient"],
    "surrogate": ["AnisotropicKernelPCA", "ProjectedSurrogate", "SparsePCE", "particle_swarm", "sobol_indices"],
    "adaptive": ["AdaptiveFeatureRegressor"],
    "attention": ["RandomFeatureAttention", "random_feature_attention"],
    "published": [],
    "reproductions": ["reproduce"],
    "cli": [],
    "exercises": ["Exercise", "check"],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = ["__version__", *_PUBLIC, *_HOME]


def __getattr__(name):
    """Import a chapter, or the chapter that defines a public name, when it is first asked for."""
    if name in _PUBLIC:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
