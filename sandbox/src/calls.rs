//! A filter of system calls, from groups of calls that are written down with a reason.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use crate::SandboxError;

/// Calls that belong together. The comment of each says why a process makes them, or must not make them.
pub(crate) type Group = &'static [Call];

/// A system call by its number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// Whatever its arguments are. The kernel decides these by number, without running the filter (Linux 5.11
    /// and later), so calls that are made for each block of data are all of this kind.
    Any(i64),
    /// If all arguments of one of the alternatives are as said.
    If(i64, &'static [&'static [Argument]]),
    /// If the first argument is this process.
    OnSelf(i64),
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
    /// The bits of this mask are those of the value.
    Bits(u64),
    /// It is another value.
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
    /// The `int` is this value.
    pub(crate) const fn is(index: u8, value: u64) -> Self {
        Self::bits(index, 0xffff_ffff, value)
    }

    /// The `int` is another value.
    pub(crate) const fn is_not(index: u8, value: u64) -> Self {
        Self {
            index,
            width: Width::Int,
            test: Test::IsNot,
            value,
        }
    }

    /// These bits of the `int` are those of the value.
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

/// What happens to calls that are in none of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They fail.
    Allow,
    /// They are made.
    Deny,
}

/// A filter of system calls.
#[derive(Debug, Clone)]
pub struct Filter(BpfProgram);

impl Filter {
    /// The calls of the groups may be made, and no others.
    pub(crate) fn allow(groups: &[Group]) -> Result<Self, SandboxError> {
        Self::compile(groups, Kind::Allow)
    }

    /// The calls of the groups fail, and all others may be made.
    pub(crate) fn deny(groups: &[Group]) -> Result<Self, SandboxError> {
        Self::compile(groups, Kind::Deny)
    }

    /// Enforces it for all threads of this process, for good.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn enforce(&self) -> Result<(), SandboxError> {
        seccompiler::apply_filter_all_threads(&self.0).map_err(error)
    }

    /// Enforces it for the calling thread and those that it starts, for good.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
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
        let mut program = other_numbers_are_unknown();
        if kind == Kind::Allow {
            program.extend(later_calls_are_unknown(rules.keys().copied()));
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

/// The rules of each call; none at all is any arguments.
fn rules(groups: &[Group]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always = Vec::new();
    for call in groups.iter().copied().flatten() {
        match *call {
            Call::Any(number) => always.push(number),
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
    rules.extend(always.into_iter().map(|number| (number, Vec::new())));
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

/// Where the number is in `struct seccomp_data`.
const NUMBER: u32 = 0;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// On x86-64, where some kernels have each call a second time, with 32-bit pointers: its number has bit 30 set, and the
/// architecture is the same (`__X32_SYSCALL_BIT` of asm/unistd.h). A list of forbidden numbers would not find these calls.
/// No processor has calls with such numbers otherwise.
const OTHER_NUMBERS: u32 = 0x4000_0000;

/// The beginning of every program: calls with these numbers do not exist. The end of the program refuses other architectures
/// (seccompiler ends the process).
fn other_numbers_are_unknown() -> BpfProgram {
    vec![
        instruction(LOAD_WORD, 0, 0, NUMBER),
        instruction(JUMP_IF_AT_LEAST, 0, 1, OTHER_NUMBERS),
        instruction(RETURN, 0, 0, unknown()),
    ]
}

fn unknown() -> u32 {
    libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()
}

/// Calls have had the same number on all processors since Linux 5.1, which began at this one.
const LATER: u32 = 424;
/// Where x86-64 has other numbers again. Linux 6.18 has used them up to 470.
const LATER_END: u32 = 512;

/// The beginning of a program of allowed calls: those of Linux 5.1 and later that are not among them do not
/// exist. Programs have to do without them on older kernels anyway, and know how. glibc starts threads by
/// `clone3`, whose flags are in memory that a filter cannot see, and uses `clone` where that does not exist.
fn later_calls_are_unknown(allowed: impl Iterator<Item = i64>) -> BpfProgram {
    let later = LATER..LATER_END;
    let allowed: Vec<u32> = allowed
        .filter_map(|number| u32::try_from(number).ok())
        .filter(|number| later.contains(number))
        .collect();
    // How far it is from the first comparison with an allowed call to behind the last instruction. There
    // are not 100 such calls at all.
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

    /// What a program answers to a call by its number, with arguments of zeros: the kernel's machine, as far as programs of
    /// this module use it (linux/filter.h).
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
            for other in [mount | OTHER_NUMBERS, OTHER_NUMBERS, u32::MAX] {
                assert_eq!(verdict(&filter, other), unknown(), "{other:#x}");
            }
        }
    }
}
