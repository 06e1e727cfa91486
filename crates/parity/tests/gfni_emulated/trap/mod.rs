//! The trap of an unknown instruction, answered: the address of unsafe code in these tests.
//!
//! Invariant: a thread continues after a trap only with all of `vgf2p8affineqb` done to its saved
//! registers; an instruction unknown to `decode` ends the process, and its bytes are printed. A CPU
//! with GFNI never traps here. Called by `main`, and by the kernel of the operating system.
//!
//! A trap costs microseconds, the instruction next to nothing, so the handler continues with those
//! that follow directly.

mod forms;

use std::cell::Cell;
use std::io::Write;
use std::sync::{Once, OnceLock};

use libc::{c_int, c_void, siginfo_t, ucontext_t};
use raidlab_parity::{Kernels, Unavailable};

use crate::decode::decode;
use crate::machine::{Layout, Vectors, execute};

/// The frame's general registers, in the order in which instructions number them.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
const NEXT: usize = libc::REG_RIP as usize;

/// Linux's frame around the XSAVE area (asm/sigcontext.h): what the legacy area says from 464 on,
/// and the word after the area.
const LEGACY_BYTES: usize = 512;
const MAGIC_1: (usize, u32) = (464, 0x4650_5853);
const AREA_BYTES: usize = 480;
const MAGIC_2: u32 = 0x4650_5845;

static LAYOUT: OnceLock<Layout> = OnceLock::new();

thread_local! {
    /// Constant and without a destructor: a signal handler may use it.
    static EMULATED: Cell<u64> = const { Cell::new(0) };
}

/// Whether the CPU itself has the instruction.
pub fn native() -> bool {
    std::arch::is_x86_feature_detected!("gfni")
}

/// How many instructions were emulated in this thread.
pub fn emulated() -> u64 {
    EMULATED.get()
}

/// The GFNI kernels of that name, tried by their self-check: on this CPU's instruction, or on ours.
pub fn kernels(name: &str) -> Result<Kernels, Unavailable> {
    if native() {
        return Kernels::by_name(name);
    }
    install();
    // SAFETY: from here on the trap is handled as the manual describes the instruction (`affine`),
    // with the registers of the base in the frame.
    unsafe { Kernels::assume_gfni(name) }
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        LAYOUT.get_or_init(|| Layout::new(component_start));
        // SAFETY: all zeroes is a valid sigaction, and the handler has the type that SA_SIGINFO
        // asks for. It only touches the frame, and memory that the instruction names.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = trapped;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut())
        };
        assert_eq!(result, 0, "sigaction: {}", std::io::Error::last_os_error());
    });
}

/// CPUID leaf 0xd: where a component starts, if there is one.
#[allow(unused_unsafe, reason = "safe since a later Rust than the oldest that we support")]
fn component_start(component: u32) -> Option<usize> {
    // SAFETY: each x86-64 CPU has CPUID, and those with AVX this leaf.
    let leaf = unsafe { std::arch::x86_64::__cpuid_count(0xd, component) };
    (leaf.eax != 0).then_some(leaf.ebx as usize)
}

extern "C" fn trapped(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: SA_SIGINFO hands over the context of the thread that is stopped here, ours alone.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    if !step(context) {
        refuse(context.uc_mcontext.gregs[NEXT].cast_unsigned());
    }
    while step(context) {}
}

/// Emulates the next instruction, if `decode` supports it.
fn step(context: &mut ucontext_t) -> bool {
    let at = context.uc_mcontext.gregs[NEXT].cast_unsigned();
    let mut code = at as *const u8;
    let affine = decode(|| {
        // SAFETY: the thread is about to execute the instruction here, and `decode` asks only for
        // bytes that belong to it.
        unsafe {
            let byte = code.read();
            code = code.add(1);
            byte
        }
    });
    let Some(affine) = affine else { return false };
    let general = GENERAL.map(|at| context.uc_mcontext.gregs[at as usize].cast_unsigned());
    let next = at + affine.length;
    let layout = LAYOUT.get().expect("set before the handler");
    let mut vectors = Vectors::new(layout, saved_state(context));
    execute(&affine, &mut vectors, &general, next, |address, bytes| {
        // SAFETY: the thread is about to read these very bytes; if it may not, reading them here
        // fails as it would there.
        unsafe { (address as *const u8).copy_to(bytes.as_mut_ptr(), bytes.len()) }
    });
    context.uc_mcontext.gregs[NEXT] = next.cast_signed();
    EMULATED.set(EMULATED.get() + 1);
    true
}

/// The XSAVE area of the frame, which the kernel loads when the handler returns.
fn saved_state(context: &mut ucontext_t) -> &mut [u8] {
    let start = context.uc_mcontext.fpregs.cast::<u8>();
    let word = |at: usize| {
        // SAFETY: called for places in the legacy area, which every frame has, and for the word
        // after the area, once the former said that there is one.
        u32::from_ne_bytes(unsafe { start.add(at).cast::<[u8; 4]>().read() })
    };
    assert!(!start.is_null() && word(MAGIC_1.0) == MAGIC_1.1, "a frame without XSAVE state");
    let bytes = word(AREA_BYTES) as usize;
    assert!(bytes > LEGACY_BYTES && word(bytes) == MAGIC_2, "a frame with half an XSAVE state");
    // SAFETY: the kernel put `bytes` bytes there, as both of its magic numbers say; no other code
    // has them while the handler runs, and they live as long as the context.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}

/// Ends the process: there is nothing to return to.
fn refuse(at: u64) -> ! {
    // SAFETY: 15 bytes, the longest that an instruction can be; a fault here ends the process too.
    let bytes = unsafe { (at as *const [u8; 15]).read() };
    // Past the capture of test output, which an abort would lose.
    let _ = writeln!(std::io::stderr(), "SIGILL at {at:#x}, not emulated: {bytes:02x?}");
    std::process::abort()
}
