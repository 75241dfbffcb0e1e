"""Bessel, Airy, hypergeometric and elliptic functions of scipy.special; `ops.special` brings them in.

They are differentiated in the argument; their orders and parameters raise when they are.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from ops.catalog import Elementwise, elementwise, unknown
from ops.elementwise import MULTIPLE_OUTPUTS

ANY = (-2.0, 2.0)
POSITIVE = (0.3, 3.0)
ORDER = ((0.3, 2.5), POSITIVE)
TWO = (2.0, 2.0)

# ---------------------------------------------------------------- of fixed order; sums, not quotients: exact at 0 too
elementwise(special.j0, lambda x, out: -special.j1(x))
elementwise(special.j1, lambda x, out: 0.5 * (special.j0(x) - special.jv(2.0, x)))
elementwise(special.y0, lambda x, out: -special.y1(x), domain=(POSITIVE,))
elementwise(special.y1, lambda x, out: special.y0(x) - out / x, domain=(POSITIVE,))
elementwise(special.i0, lambda x, out: special.i1(x))
elementwise(special.i1, lambda x, out: 0.5 * (special.i0(x) + special.iv(2.0, x)))
elementwise(special.i0e, lambda x, out: special.i1e(x) - np.sign(x) * out)
elementwise(special.i1e, lambda x, out: 0.5 * (special.i0e(x) + special.ive(2.0, x)) - np.sign(x) * out)
elementwise(special.k0, lambda x, out: -special.k1(x), domain=(POSITIVE,))
elementwise(special.k1, lambda x, out: -special.k0(x) - out / x, domain=(POSITIVE,))
elementwise(special.k0e, lambda x, out: out - special.k1e(x), domain=(POSITIVE,))
elementwise(special.k1e, lambda x, out: out - special.k0e(x) - out / x, domain=(POSITIVE,))
numpy_i0 = elementwise(np.i0, lambda x, out: special.i1(x), name="numpy_i0")

# ---------------------------------------------------------------- of any order
elementwise(
    special.jv,
    unknown("the order v of jv"),
    lambda v, x, out: 0.5 * (special.jv(v - 1.0, x) - special.jv(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.jve,
    unknown("the order v of jve"),
    lambda v, x, out: 0.5 * (special.jve(v - 1.0, x) - special.jve(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.yn,
    unknown("the order n of yn"),
    lambda n, x, out: 0.5 * (special.yv(n - 1.0, x) - special.yv(n + 1.0, x)),
    domain=(TWO, POSITIVE),
)
elementwise(
    special.yv,
    unknown("the order v of yv"),
    lambda v, x, out: 0.5 * (special.yv(v - 1.0, x) - special.yv(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.yve,
    unknown("the order v of yve"),
    lambda v, x, out: 0.5 * (special.yve(v - 1.0, x) - special.yve(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.iv,
    unknown("the order v of iv"),
    lambda v, x, out: 0.5 * (special.iv(v - 1.0, x) + special.iv(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.ive,
    unknown("the order v of ive"),
    lambda v, x, out: 0.5 * (special.ive(v - 1.0, x) + special.ive(v + 1.0, x)) - np.sign(x) * out,
    domain=ORDER,
)
elementwise(
    special.kn,
    unknown("the order n of kn"),
    lambda n, x, out: -0.5 * (special.kv(n - 1.0, x) + special.kv(n + 1.0, x)),
    domain=(TWO, POSITIVE),
)
elementwise(
    special.kv,
    unknown("the order v of kv"),
    lambda v, x, out: -0.5 * (special.kv(v - 1.0, x) + special.kv(v + 1.0, x)),
    domain=ORDER,
)
elementwise(
    special.kve,
    unknown("the order v of kve"),
    lambda v, x, out: out - 0.5 * (special.kve(v - 1.0, x) + special.kve(v + 1.0, x)),
    domain=ORDER,
)

# ---------------------------------------------------------------- Airy: Ai'' = x Ai
ai: Elementwise = elementwise(lambda x: special.airy(x)[0], lambda x, out: ai_prime(x), name="ai")
ai_prime: Elementwise = elementwise(lambda x: special.airy(x)[1], lambda x, out: x * ai(x), name="ai_prime")
bi: Elementwise = elementwise(lambda x: special.airy(x)[2], lambda x, out: bi_prime(x), name="bi")
bi_prime: Elementwise = elementwise(lambda x: special.airy(x)[3], lambda x, out: x * bi(x), name="bi_prime")
MULTIPLE_OUTPUTS[special.airy] = lambda x: (ai(x), ai_prime(x), bi(x), bi_prime(x))

# ---------------------------------------------------------------- hypergeometric: the slope shifts every parameter
elementwise(
    special.hyp0f1,
    unknown("the parameter v of hyp0f1"),
    lambda v, z, out: special.hyp0f1(v + 1.0, z) / v,
    domain=(POSITIVE, ANY),
)
elementwise(
    special.hyp1f1,
    unknown("the parameter a of hyp1f1"),
    unknown("the parameter b of hyp1f1"),
    lambda a, b, z, out: a / b * special.hyp1f1(a + 1.0, b + 1.0, z),
    domain=(POSITIVE, POSITIVE, ANY),
)
elementwise(
    special.hyperu,
    unknown("the parameter a of hyperu"),
    unknown("the parameter b of hyperu"),
    lambda a, b, x, out: -a * special.hyperu(a + 1.0, b + 1.0, x),
    domain=(POSITIVE, POSITIVE, POSITIVE),
)
elementwise(
    special.hyp2f1,
    unknown("the parameter a of hyp2f1"),
    unknown("the parameter b of hyp2f1"),
    unknown("the parameter c of hyp2f1"),
    lambda a, b, c, z, out: a * b / c * special.hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
    domain=(POSITIVE, POSITIVE, POSITIVE, (-0.8, 0.8)),
)

# ---------------------------------------------------------------- complete elliptic integrals, of the parameter m
elementwise(
    special.ellipk,
    lambda m, out: np.where(
        np.abs(m) < 1e-4,
        1.5707963267948966 * (0.25 + m * (0.28125 + m * (0.29296875 + m * 0.299072265625))),
        0.5 * (special.ellipe(m) / (1.0 - m) - out) / np.where(m == 0, 1.0, m),
    ),
    domain=((0.1, 0.9),),
)
elementwise(
    special.ellipe,
    lambda m, out: np.where(
        np.abs(m) < 1e-4,
        -1.5707963267948966 * (0.25 + m * (0.09375 + m * (0.05859375 + m * 0.042724609375))),
        0.5 * (out - special.ellipk(m)) / np.where(m == 0, 1.0, m),
    ),
    domain=((0.1, 0.9),),
)
wrightomega = elementwise(special.wrightomega, lambda x, out: out / (1.0 + out))

# ---------------------------------------------------------------- degrees
elementwise(special.sindg, lambda x, out: 0.017453292519943295 * special.cosdg(x))
elementwise(special.cosdg, lambda x, out: -0.017453292519943295 * special.sindg(x))
elementwise(special.tandg, lambda x, out: 0.017453292519943295 * (1.0 + out * out))
