"""What `import rfteach` gives, for type checkers and editors, which do not follow its `__getattr__`."""

from . import (
    arrays as arrays, copies as copies, products as products, datasets as datasets, plots as plots, kernels as
    kernels, stable as stable, features as features, processes as processes, ridge as ridge, moments as moments,
    streaming as streaming, feature_ridge as feature_ridge, selection as selection, kernel_ridge as kernel_ridge,
    conjugate as conjugate, reach as reach, distances as distances, bandwidth as bandwidth, rbf as rbf, orderq as
    orderq, anova as anova, bpdn as bpdn, expansion as expansion, srfe as srfe, pursuit as pursuit,
    harfe_regressor as harfe_regressor, preconditioning as preconditioning, eigenpro as eigenpro, centers as
    centers, pca as pca, chaos as chaos, kpca as kpca, swarm as swarm, projected as projected, sobol as sobol,
    adaptive as adaptive, waves as waves, effects as effects, laws as laws, attention as attention,
    attention_layer as attention_layer, agop as agop, columns as columns, averaging as averaging, race as race,
    auto as auto, cost as cost, uncertainty as uncertainty, intervals as intervals, modules as modules, evidence
    as evidence, cli as cli, exercises as exercises, grading as grading, answers as answers
)
from .arrays import (
    Like as Like, as_tensor as as_tensor, memory_budget as memory_budget, random_generator as random_generator,
    row_blocks as row_blocks
)
from .datasets import (
    fetch as fetch, friedman_errors as friedman_errors, gaussian_bump as gaussian_bump, ishigami as ishigami,
    load_mnist as load_mnist, load_propulsion as load_propulsion, load_regression as load_regression, sobol_g as
    sobol_g
)
from .plots import (
    fit_rate as fit_rate, plot_rate as plot_rate, set_style as set_style, show_gram as show_gram, slider as slider
)
from .kernels import (
    Cauchy as Cauchy, Gaussian as Gaussian, Laplacian as Laplacian, Laplacian1 as Laplacian1, Matern as Matern,
    gram_blocks as gram_blocks
)
from .stable import (
    PowerExponential as PowerExponential, PowerExponential1 as PowerExponential1
)
from .features import (
    RandomFourierFeatures as RandomFourierFeatures, fourier_features as fourier_features, sample_frequencies as
    sample_frequencies
)
from .processes import (
    process_group as process_group
)
from .ridge import (
    loo_error as loo_error, pinv_solve as pinv_solve, ridge_path as ridge_path
)
from .streaming import (
    StreamingRidge as StreamingRidge
)
from .feature_ridge import (
    RandomFeatureRidge as RandomFeatureRidge, RandomFeatureRidgeClassifier as RandomFeatureRidgeClassifier
)
from .selection import (
    choose as choose
)
from .kernel_ridge import (
    gram_path as gram_path, gram_solve as gram_solve, gram_times as gram_times
)
from .conjugate import (
    KernelRidgeRegressor as KernelRidgeRegressor, gram_cg as gram_cg, gram_cg_shared as gram_cg_shared
)
from .bandwidth import (
    learn_bandwidth as learn_bandwidth, median_bandwidth as median_bandwidth
)
from .rbf import (
    NystroemFeatures as NystroemFeatures, RBFRegressor as RBFRegressor
)
from .orderq import (
    feature_matrix as feature_matrix, n_features_bound as n_features_bound, n_samples_bound as n_samples_bound,
    sparse_frequencies as sparse_frequencies
)
from .bpdn import (
    basis_pursuit_denoising as basis_pursuit_denoising
)
from .srfe import (
    SRFERegressor as SRFERegressor
)
from .pursuit import (
    cosamp as cosamp, harfe as harfe, htp as htp, omp as omp
)
from .harfe_regressor import (
    HARFERegressor as HARFERegressor
)
from .preconditioning import (
    eigenpro_step as eigenpro_step, preconditioner as preconditioner, top_eigensystem as top_eigensystem
)
from .eigenpro import (
    EigenProClassifier as EigenProClassifier, EigenProRegressor as EigenProRegressor
)
from .centers import (
    CentersClassifier as CentersClassifier, CentersRegressor as CentersRegressor
)
from .pca import (
    GradientPCA as GradientPCA, reconstruction_error as reconstruction_error, reconstruction_gradient as
    reconstruction_gradient
)
from .chaos import (
    SparsePCE as SparsePCE
)
from .kpca import (
    AnisotropicKernelPCA as AnisotropicKernelPCA
)
from .swarm import (
    particle_swarm as particle_swarm
)
from .projected import (
    ProjectedSurrogate as ProjectedSurrogate
)
from .sobol import (
    sobol_indices as sobol_indices
)
from .adaptive import (
    AdaptiveFeatureRegressor as AdaptiveFeatureRegressor
)
from .effects import (
    sensitivity as sensitivity
)
from .attention import (
    random_feature_attention as random_feature_attention
)
from .attention_layer import (
    RandomFeatureAttention as RandomFeatureAttention
)
from .agop import (
    RFMClassifier as RFMClassifier, RFMRegressor as RFMRegressor, kernel_gradients as kernel_gradients
)
from .columns import (
    TableEncoder as TableEncoder
)
from .auto import (
    AutoKernelClassifier as AutoKernelClassifier, AutoKernelRegressor as AutoKernelRegressor
)
from .uncertainty import (
    jackknife_plus as jackknife_plus, local_scale as local_scale, pathwise as pathwise, posterior as posterior
)
from .modules import (
    to_module as to_module
)
from .evidence.run import (
    reproduce as reproduce
)
from .exercises import (
    Exercise as Exercise, check as check
)

__version__: str
