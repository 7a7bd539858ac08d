//! What bytes cost over the devices of a guest without files.

/// What bytes cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// In 10^6 bytes per second.
    pub rate: f64,
    /// Seconds of all processors of the machine for 10^9 bytes.
    pub processor: f64,
}

/// Moves bytes without files, for comparison.
pub trait Baselines {
    /// Moves so many bytes from memory to memory through a stack.
    ///
    /// # Errors
    ///
    /// When the channel fails, in one line.
    fn memory(&mut self, stack: &str, bytes: u64) -> Result<Cost, String>;

    /// What the devices take for so many bytes that no program touches.
    ///
    /// # Errors
    ///
    /// When that is not measured, in one line.
    fn devices(&mut self, bytes: u64) -> Result<Cost, String>;
}
