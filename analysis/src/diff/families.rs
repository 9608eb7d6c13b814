//! Families: operators of several frameworks and vendors that compute the same.
//!
//! Owns: the list of them. Because: PyTorch's `mm` and JAX's `dot_general` share no name, and neither do the
//! convolutions of two vendors. Does not: compare; an operator in both profiles needs no family.

/// By plain name. Operators that only one framework composes of others (softmax in JAX) have no row.
const FAMILIES: [(&str, &[&str]); 14] = [
    (
        "matrix product",
        &[
            "mm",
            "addmm",
            "bmm",
            "baddbmm",
            "mv",
            "addmv",
            "dot",
            "matmul",
            "linear",
            "_scaled_mm",
            "dot_general",
            "ragged_dot_general",
            "xla::cpu::DotThunk",
            "xla::gpu::GemmThunk",
            "xla::gpu::CublasLtMatmulThunk",
        ],
    ),
    (
        "convolution",
        &[
            "convolution",
            "_convolution",
            "conv1d",
            "conv2d",
            "conv3d",
            "cudnn_convolution",
            "cudnn_convolution_relu",
            "miopen_convolution",
            "miopen_convolution_relu",
            "mkldnn_convolution",
            "_slow_conv2d_forward",
            "convolution_backward",
            "conv_general_dilated",
            "xla::cpu::ConvolutionThunk",
            "xla::gpu::ConvolutionThunk",
        ],
    ),
    (
        "batch normalization",
        &[
            "batch_norm",
            "native_batch_norm",
            "cudnn_batch_norm",
            "miopen_batch_norm",
            "_native_batch_norm_legit",
        ],
    ),
    (
        "attention",
        &[
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_flash_attention_forward",
            "_efficient_attention_forward",
            "cudnn_attention",
            "dot_product_attention_fwd",
        ],
    ),
    ("addition", &["add", "add_any"]),
    ("division", &["div", "true_divide"]),
    ("sum", &["sum", "reduce_sum"]),
    ("maximum", &["amax", "max", "reduce_max"]),
    ("conversion of types", &["_to_copy", "to", "convert_element_type"]),
    ("gather", &["index", "index_select", "embedding", "take", "gather"]),
    ("transposition", &["transpose", "t", "permute"]),
    ("concatenation", &["cat", "concat", "concatenate"]),
    ("choice of elements", &["where", "select_n"]),
    ("sigmoid", &["sigmoid", "logistic"]),
];

/// What an operator computes, by its plain name.
pub(super) fn family(name: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|(_, names)| names.contains(&name)).map(|(family, _)| *family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_one_family() {
        let mut names: Vec<&str> = FAMILIES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!((family("mm"), family("dot_general"), family("")), (family("bmm"), family("mm"), None));
    }
}
