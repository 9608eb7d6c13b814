//! Pseudorandom numbers, the same in every run.
//!
//! Owns: one generator for tests with synthetic input. Because: a failure must be reproducible. Does not: give secure
//! random numbers.

/// The generator (xorshift64*, Vigna 2016); its seed is not zero.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below a bound; a bound of 0 counts as 1.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        number as usize % bound.max(1)
    }

    /// A random choice.
    ///
    /// # Panics
    /// There are no choices.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
