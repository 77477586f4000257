"""vkconv.jax in processes of their own: with several devices, without parts of JAX, with code compiled elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")

SHARDED = """
import jax, numpy as np, vkconv.jax as vj
x, w = (jax.random.normal(jax.random.PRNGKey(i), s) for i, s in enumerate([(4, 6, 6, 2), (3, 3, 3, 2)]))
mesh, P = jax.sharding.Mesh(np.array(jax.devices()), ("d",)), jax.P
def grads(conv):
    return jax.grad(lambda x, w: (conv(x, w) ** 2).sum(), (0, 1))
def own(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "OHWI", "NHWC"))
want = grads(own)(x, w)
for checked in (True, False):
    def parts(x, w):
        dx, dw = grads(vj.conv2d)(x, w)
        return dx, dw if checked else jax.lax.psum(dw, "d")
    each = jax.shard_map(parts, mesh=mesh, in_specs=(P("d"), P()), out_specs=(P("d"), P()), check_vma=checked)
    for got, exact in zip(jax.jit(each)(x, w), want):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
images = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("d")))
np.testing.assert_allclose(jax.jit(vj.conv2d)(images, w), own(x, w), rtol=1e-4, atol=1e-4)
"""


@pytest.mark.skipif(not hasattr(jax.lax, "pcast"), reason="this JAX has no names for what varies over a mesh")
def test_several_devices():
    """Gradients with respect to what all devices share are summed over them."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SHARDED], env=environment, check=True, timeout=300)


@pytest.mark.parametrize("without", ["del jet._bilinear_taylor_rule", "sys.modules['jax.experimental.jet'] = None"])
def test_without_rules_of_taylor_series(without):
    """Which are no part of JAX's interface."""
    call = "import jax, vkconv.jax; vkconv.jax.conv1d(*[jax.numpy.ones((1, 3, 2))] * 2)"
    code = f"import sys; from jax.experimental import jet; {without}; {call}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


EXPORTED = """
import sys, jax, numpy as np, vkconv.jax
from jax import export
x, w = (np.arange(n, dtype="f4").reshape(s) for n, s in [(24, (1, 4, 3, 2)), (36, (2, 3, 3, 2))])
if sys.argv[1] == "write":
    call = jax.jit(lambda x, w: vkconv.jax.conv2d(x, w, padding=1))
    checks = [export.DisabledSafetyCheck.custom_call("vkconv")]
    sys.stdout.buffer.write(export.export(call, disabled_checks=checks)(x, w).serialize())
else:
    got = export.deserialize(bytearray(sys.stdin.buffer.read())).call(x, w)
    np.testing.assert_array_equal(got, vkconv.conv2d(x, w, padding=1))
"""


def test_exported_code_in_a_process_that_compiled_none():
    """Its first convolution runs in a thread of XLA's, without the interpreter's lock."""
    command = [sys.executable, "-c", EXPORTED]
    code = subprocess.run([*command, "write"], check=True, timeout=300, stdout=subprocess.PIPE).stdout
    subprocess.run([*command, "run"], check=True, timeout=300, input=code)
