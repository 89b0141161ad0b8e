"""Random features and large-scale kernel learning: the library exported from the course's notebooks."""

__version__ = "0.1.0"

from importlib import import_module

_PUBLIC = {
    "arrays": ["Like", "as_tensor", "memory_budget", "random_generator", "row_blocks"],
    "copies": [],
    "products": [],
    "datasets": ["fetch", "friedman_errors", "gaussian_bump", "ishigami", "load_mnist", "load_propulsion", "load_regression",
                 "sobol_g"],
    "plots": ["fit_rate", "plot_rate", "set_style", "show_gram", "slider"],
    "kernels": ["Cauchy", "Gaussian", "Laplacian", "Laplacian1", "Matern", "gram_blocks"],
    "stable": ["PowerExponential", "PowerExponential1"],
    "features": ["RandomFourierFeatures", "fourier_features", "sample_frequencies"],
    "processes": ["process_group"],
    "ridge": ["loo_error", "pinv_solve", "ridge_path"],
    "moments": [],
    "streaming": ["StreamingRidge"],
    "feature_ridge": ["RandomFeatureRidge", "RandomFeatureRidgeClassifier"],
    "selection": ["choose"],
    "kernel_ridge": ["gram_path", "gram_solve", "gram_times"],
    "conjugate": ["KernelRidgeRegressor", "gram_cg", "gram_cg_shared"],
    "reach": [],
    "distances": [],
    "bandwidth": ["learn_bandwidth", "median_bandwidth"],
    "rbf": ["NystroemFeatures", "RBFRegressor"],
    "orderq": ["feature_matrix", "n_features_bound", "n_samples_bound", "sparse_frequencies"],
    "anova": [],
    "bpdn": ["basis_pursuit_denoising"],
    "expansion": [],
    "srfe": ["SRFERegressor"],
    "pursuit": ["cosamp", "harfe", "htp", "omp"],
    "harfe_regressor": ["HARFERegressor"],
    "preconditioning": ["eigenpro_step", "preconditioner", "top_eigensystem"],
    "eigenpro": ["EigenProClassifier", "EigenProRegressor"],
    "centers": ["CentersClassifier", "CentersRegressor"],
    "pca": ["GradientPCA", "reconstruction_error", "reconstruction_gradient"],
    "chaos": ["SparsePCE"],
    "kpca": ["AnisotropicKernelPCA"],
    "swarm": ["particle_swarm"],
    "projected": ["ProjectedSurrogate"],
    "sobol": ["sobol_indices"],
    "adaptive": ["AdaptiveFeatureRegressor"],
    "waves": [],
    "effects": ["sensitivity"],
    "laws": [],
    "attention": ["random_feature_attention"],
    "attention_layer": ["RandomFeatureAttention"],
    "agop": ["RFMClassifier", "RFMRegressor", "kernel_gradients"],
    "columns": ["TableEncoder"],
    "averaging": [],
    "race": [],
    "auto": ["AutoKernelClassifier", "AutoKernelRegressor"],
    "cost": [],
    "uncertainty": ["jackknife_plus", "local_scale", "pathwise", "posterior"],
    "intervals": [],
    "modules": ["to_module"],
    "evidence.published": [],
    "evidence.protocols": [],
    "evidence.sparse": [],
    "evidence.mnist": [],
    "evidence.components": [],
    "evidence.surrogates": [],
    "evidence.verdicts": [],
    "evidence.reproductions": [],
    "evidence.fingerprint": [],
    "evidence.run": ["reproduce"],
    "evidence.report": [],
    "cli": [],
    "exercises": ["Exercise", "check"],
    "grading": [],
    "answers": [],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
_ROOMS = list(dict.fromkeys(module.partition(".")[0] for module in _PUBLIC))  # modules, and folders of modules
__all__ = ["__version__", *_ROOMS, *_HOME]


def __getattr__(name):
    """Import a chapter, or the chapter that defines a public name, when it is first asked for."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
