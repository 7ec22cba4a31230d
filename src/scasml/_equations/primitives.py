"""Names of JAX primitives, grouped by the rule of Ito's formula that applies to them."""

# Linear in all noisy operands, taken together. (An operand is noisy if it has noise; see `ito`.)
LINEAR = frozenset(
    {
        "add", "add_any", "sub", "neg", "reshape", "transpose", "broadcast_in_dim", "squeeze",
        "expand_dims", "concatenate", "slice", "rev", "reduce_sum", "convert_element_type", "copy",
        "cumsum", "real", "symbolic_zeros", "pad", "reduce_precision",
    }
)  # fmt: skip

# Linear in one operand if the other operands are not noisy. The value is the index of that
# operand, or None if the primitive is linear in each operand separately.
LINEAR_IN_ONE: dict[str, int | None] = {
    "mul": None,
    "dot_general": None,
    "conv_general_dilated": None,
    "div": 0,
    "dynamic_slice": 0,
    "gather": 0,
}

# Functions of one operand that act on each entry separately.
ELEMENTWISE = frozenset(
    {
        "tanh", "exp", "exp2", "log", "log1p", "expm1", "logistic", "sin", "cos", "tan",
        "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "sqrt", "rsqrt", "cbrt",
        "erf", "erfc", "integer_pow", "square",
    }
)  # fmt: skip

# Functions of one or more operands that act on the entries at each position separately.
POSITIONWISE = ELEMENTWISE | frozenset(
    {
        "add", "add_any", "sub", "neg", "mul", "div", "pow", "max", "min", "abs", "sign",
        "select_n", "convert_element_type", "copy",
    }
)  # fmt: skip

# Calls of an inner jaxpr, which is interpreted in turn.
CALLS = frozenset({"jit", "pjit", "remat", "remat2", "checkpoint"})
