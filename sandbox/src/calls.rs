//! Filters of system calls (seccomp), compiled from groups of calls.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use crate::error::SandboxError;

/// System calls for one purpose, which the comment of the group names.
pub(crate) type Group = &'static [Call];

/// A system call, by its number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// With any arguments. The kernel decides these from a cache by number, without running the filter (Linux 5.11 and
    /// later), so all calls that are made for each block of data are of this kind.
    Any(i64),
    /// If all conditions of one of the alternatives hold.
    If(i64, &'static [&'static [Argument]]),
    /// If the first argument is the id of this process.
    OnSelf(i64),
}

/// The bits of a C flag as a register holds them.
pub(crate) const fn flag(bits: i32) -> u64 {
    #[expect(clippy::cast_sign_loss, reason = "flags are bits")]
    let bits = bits as u32 as u64;
    bits
}

/// A condition on an argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    index: u8,
    width: Width,
    test: Test,
    value: u64,
}

#[derive(Debug, Clone, Copy)]
enum Test {
    /// The bits of this mask are equal to those of the value.
    Bits(u64),
    /// It is different from the value.
    IsNot,
}

#[derive(Debug, Clone, Copy)]
enum Width {
    /// A C `int`: the kernel ignores the upper half of the register.
    Int,
    /// A pointer.
    Pointer,
}

impl Argument {
    /// The `int` is equal to this value.
    pub(crate) const fn is(index: u8, value: u64) -> Self {
        Self::bits(index, 0xffff_ffff, value)
    }

    /// The `int` is different from this value.
    pub(crate) const fn is_not(index: u8, value: u64) -> Self {
        Self {
            index,
            width: Width::Int,
            test: Test::IsNot,
            value,
        }
    }

    /// These bits of the `int` are equal to those of the value.
    pub(crate) const fn bits(index: u8, mask: u64, value: u64) -> Self {
        Self {
            index,
            width: Width::Int,
            test: Test::Bits(mask),
            value,
        }
    }

    /// The pointer is null.
    pub(crate) const fn null(index: u8) -> Self {
        Self {
            index,
            width: Width::Pointer,
            test: Test::Bits(u64::MAX),
            value: 0,
        }
    }

    fn condition(self) -> Result<SeccompCondition, BackendError> {
        let length = match self.width {
            Width::Int => SeccompCmpArgLen::Dword,
            Width::Pointer => SeccompCmpArgLen::Qword,
        };
        let operator = match self.test {
            Test::Bits(mask) => SeccompCmpOp::MaskedEq(mask),
            Test::IsNot => SeccompCmpOp::Ne,
        };
        SeccompCondition::new(self.index, length, operator, self.value)
    }
}

/// Whether the groups list what is allowed or what is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Calls outside of the groups fail.
    Allow,
    /// Calls outside of the groups are permitted.
    Deny,
}

/// A filter of system calls.
#[derive(Debug, Clone)]
pub struct Filter(BpfProgram);

impl Filter {
    /// Permits only the calls of these groups.
    pub(crate) fn allow(groups: &[Group]) -> Result<Self, SandboxError> {
        Self::compile(groups, Kind::Allow)
    }

    /// Permits all calls except those of these groups.
    pub(crate) fn deny(groups: &[Group]) -> Result<Self, SandboxError> {
        Self::compile(groups, Kind::Deny)
    }

    /// Installs the filter for all threads of this process. It cannot be removed.
    ///
    /// # Errors
    ///
    /// When a system call fails.
    pub fn enforce(&self) -> Result<(), SandboxError> {
        seccompiler::apply_filter_all_threads(&self.0).map_err(error)
    }

    /// Installs the filter for this thread and those that it starts. It cannot be removed.
    ///
    /// # Errors
    ///
    /// When a system call fails.
    pub fn enforce_on_this_thread(&self) -> Result<(), SandboxError> {
        seccompiler::apply_filter(&self.0).map_err(error)
    }

    fn compile(groups: &[Group], kind: Kind) -> Result<Self, SandboxError> {
        let rules = rules(groups).map_err(error)?;
        let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let (others, listed) = match kind {
            Kind::Allow => (refused, SeccompAction::Allow),
            Kind::Deny => (SeccompAction::Allow, refused),
        };
        let mut program = refuse_x32_calls();
        if kind == Kind::Allow {
            program.extend(refuse_later_calls(rules.keys().copied()));
        }
        let architecture = std::env::consts::ARCH.try_into().map_err(error)?;
        let filter = SeccompFilter::new(rules, others, listed, architecture).map_err(error)?;
        program.extend(BpfProgram::try_from(filter).map_err(error)?);
        Ok(Self(program))
    }
}

fn error(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Calls(error.to_string())
}

/// The rules of each call. An empty list permits any arguments.
fn rules(groups: &[Group]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut unconditional = Vec::new();
    for call in groups.iter().copied().flatten() {
        match *call {
            Call::Any(number) => unconditional.push(number),
            Call::If(number, alternatives) => {
                for arguments in alternatives {
                    rules.entry(number).or_default().push(rule(arguments)?);
                }
            }
            Call::OnSelf(number) => {
                let own = Argument::is(0, u64::from(std::process::id()));
                rules.entry(number).or_default().push(rule(&[own])?);
            }
        }
    }
    rules.extend(unconditional.into_iter().map(|number| (number, Vec::new())));
    Ok(rules)
}

fn rule(arguments: &[Argument]) -> Result<SeccompRule, BackendError> {
    let conditions = arguments.iter().map(|argument| argument.condition());
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

// linux/bpf_common.h.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The offset of the call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The first number of the x32 ABI: on x86-64 some kernels have each call a second time, with bit 30 of the number set
/// and the same architecture (`__X32_SYSCALL_BIT` of asm/unistd.h). A list of denied numbers would not match these calls.
/// No other architecture uses such numbers.
const X32_NUMBERS: u32 = 0x4000_0000;

/// The first instructions of every program: x32 calls fail with `ENOSYS`. The part that seccompiler makes ends the process
/// on calls of other architectures.
fn refuse_x32_calls() -> BpfProgram {
    vec![
        instruction(LOAD_WORD, 0, 0, NUMBER),
        instruction(JUMP_IF_AT_LEAST, 0, 1, X32_NUMBERS),
        instruction(RETURN, 0, 0, unknown()),
    ]
}

/// The call fails with `ENOSYS`.
fn unknown() -> u32 {
    libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()
}

/// Calls that were added in Linux 5.1 and later have the same number on all architectures, from this one on.
const LATER: u32 = 424;
/// The end of the range: x86-64 uses 512 and above for x32. Linux 6.18 has numbers up to 470.
const LATER_END: u32 = 512;

/// Further instructions of an allow list: calls of Linux 5.1 and later that are not on it fail with `ENOSYS`, because
/// libraries have a fallback for older kernels. glibc starts threads with `clone3`, whose flags are in memory that a filter
/// cannot read, and falls back to `clone`.
fn refuse_later_calls(allowed: impl Iterator<Item = i64>) -> BpfProgram {
    let later = LATER..LATER_END;
    let allowed: Vec<u32> = allowed
        .filter_map(|number| u32::try_from(number).ok())
        .filter(|number| later.contains(number))
        .collect();
    // The jump distance from the first comparison with an allowed call to the end of these instructions. There are fewer
    // than 100 such calls.
    let length = u8::try_from(allowed.len() + 1).unwrap_or(u8::MAX);
    let mut program = vec![
        instruction(LOAD_WORD, 0, 0, NUMBER),
        instruction(JUMP_IF_AT_LEAST, 0, length + 1, LATER),
        instruction(JUMP_IF_AT_LEAST, length, 0, LATER_END),
    ];
    for (left, number) in (1..length).rev().zip(allowed) {
        program.push(instruction(JUMP_IF_EQUAL, left, 0, number));
    }
    program.push(instruction(RETURN, 0, 0, unknown()));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict of a program on a call whose arguments are zero: an interpreter of the BPF instructions that programs of
    /// this module consist of (linux/filter.h).
    fn verdict(filter: &Filter, number: u32) -> u32 {
        const ARCHITECTURE: u32 = 4;
        const AND: u16 = 0x54;
        const JUMP: u16 = 0x05;

        let native = filter
            .0
            .iter()
            .position(|step| step.k == ARCHITECTURE && step.code == LOAD_WORD);
        let native = filter.0[native.expect("it is looked at") + 1].k;
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &filter.0[at];
            at += 1;
            let jump = |condition: bool| usize::from(if condition { step.jt } else { step.jf });
            match step.code {
                LOAD_WORD if step.k == NUMBER => value = number,
                LOAD_WORD if step.k == ARCHITECTURE => value = native,
                LOAD_WORD => value = 0,
                AND => value &= step.k,
                JUMP => at += step.k as usize,
                JUMP_IF_EQUAL => at += jump(value == step.k),
                JUMP_IF_AT_LEAST => at += jump(value >= step.k),
                RETURN => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn the_other_number_of_a_forbidden_call_does_not_exist() {
        const GROUP: Group = &[Call::Any(libc::SYS_mount)];
        let mount = u32::try_from(libc::SYS_mount).unwrap();
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();

        let denies = Filter::deny(&[GROUP]).unwrap();
        assert_eq!(verdict(&denies, mount), refused);
        assert_eq!(verdict(&denies, mount + 1), libc::SECCOMP_RET_ALLOW);
        let allows = Filter::allow(&[GROUP]).unwrap();
        assert_eq!(verdict(&allows, mount), libc::SECCOMP_RET_ALLOW);
        assert_eq!(verdict(&allows, mount + 1), refused);
        for filter in [denies, allows] {
            for other in [mount | X32_NUMBERS, X32_NUMBERS, u32::MAX] {
                assert_eq!(verdict(&filter, other), unknown(), "{other:#x}");
            }
        }
    }
}
