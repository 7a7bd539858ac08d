//! What the kernel offers to confine brokers with, for whoever checks a machine.

use landlock::{AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};

/// Whether the kernel can keep a broker in the directory of its account: Linux 5.19 and later can,
/// unless Landlock is switched off.
pub fn kernel_has_landlock() -> bool {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer);
    rules.and_then(Ruleset::create).is_ok()
}
