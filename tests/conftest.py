import jax

# Strict on purpose: double precision is there, nothing is promoted or broadcast that the code does not spell out.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
