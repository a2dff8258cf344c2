//! zeropoint.h, version 1 of its binary interface.

use std::ffi::{c_char, c_int, c_void};

pub const ABI_VERSION: i32 = 1;
pub const MAX_RANK: usize = 8;

#[repr(C)]
pub struct Program {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Session {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tensor {
    pub data: *mut c_void,
    pub bytes: usize,
    pub kind: i32,
    pub rank: i32,
    pub sizes: [i64; MAX_RANK],
    pub strides: [i64; MAX_RANK],
}

#[repr(C)]
pub struct Input {
    pub name: *const c_char,
    pub kind: i32,
    pub rank: i32,
    pub sizes: [i64; MAX_RANK],
    pub example: [i64; MAX_RANK],
    pub axes: [*const c_char; MAX_RANK],
}

#[repr(C)]
pub struct Options {
    pub memory_limit: i64,
    pub reserved: [i64; 7],
}

extern "C" {
    pub fn zp_abi_version() -> i32;
    pub fn zp_version() -> *const c_char;
    pub fn zp_last_error() -> *const c_char;
    pub fn zp_isa() -> *const c_char;
    pub fn zp_num_threads() -> i32;
    pub fn zp_set_num_threads(threads: i32) -> c_int;
    pub fn zp_program_load(path: *const c_char, options: *const Options, program: *mut *mut Program) -> c_int;
    pub fn zp_program_load_memory(
        data: *const c_void,
        bytes: usize,
        options: *const Options,
        program: *mut *mut Program,
    ) -> c_int;
    pub fn zp_program_free(program: *mut Program);
    pub fn zp_program_input_count(program: *const Program) -> usize;
    pub fn zp_program_output_count(program: *const Program) -> usize;
    pub fn zp_program_input(program: *const Program, index: usize, input: *mut Input) -> c_int;
    pub fn zp_program_result(program: *const Program) -> *const c_char;
    pub fn zp_session_create(program: *mut Program, session: *mut *mut Session) -> c_int;
    pub fn zp_session_free(session: *mut Session);
    pub fn zp_session_reset(session: *mut Session) -> c_int;
    pub fn zp_session_run(
        session: *mut Session,
        inputs: *const Tensor,
        input_count: usize,
        outputs: *mut Tensor,
        output_count: usize,
    ) -> c_int;
}
