//! Runs quantized models: programs that zeropoint compiled, files that end in `.zpt`.
//!
//! ```no_run
//! let program = zeropoint::Program::load("model.zpt")?;
//! let mut session = program.session()?; // one for each thread
//! let pixels = vec![0.0f32; 3 * 224 * 224];
//! let outputs = session.run(&[zeropoint::Tensor::new(&pixels, &[1, 3, 224, 224])?])?;
//! let scores: Vec<f32> = outputs[0].to_vec()?;
//! # Ok::<(), zeropoint::Error>(())
//! ```
//!
//! A thin layer over the C library (libzeropoint), without dependencies. Files are untrusted: a damaged one is an `Error`.

mod ffi;

use std::ffi::{c_char, c_int, CStr, CString};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

/// What went wrong: the status of the C library, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    InvalidArgument,
    BadShape,
    BadFile,
    Io,
    OutOfMemory,
    Busy,
    Internal,
}

impl Error {
    pub fn status(&self) -> Status {
        self.status
    }

    fn argument(message: String) -> Error {
        Error { status: Status::InvalidArgument, message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

fn check(status: c_int) -> Result<(), Error> {
    let status = match status {
        0 => return Ok(()),
        1 | 7 => Status::InvalidArgument,
        2 => Status::BadShape,
        3 => Status::BadFile,
        4 => Status::Io,
        5 => Status::OutOfMemory,
        6 => Status::Busy,
        _ => Status::Internal,
    };
    // SAFETY: a string of this thread, which its next call may replace; it is copied before.
    Err(Error { status, message: unsafe { text(ffi::zp_last_error()) } })
}

/// SAFETY: `string` is NULL or ends with a zero.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    CStr::from_ptr(string).to_string_lossy().into_owned()
}

/// The type of the elements of a tensor. Its numbers are those of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ElementType {
    U8 = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F32 = 5,
    F16 = 6,
    Bool = 7,
}

impl ElementType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            ElementType::U8 | ElementType::I8 | ElementType::Bool => 1,
            ElementType::I16 | ElementType::F16 => 2,
            ElementType::I32 | ElementType::F32 => 4,
            ElementType::I64 => 8,
        }
    }

    fn of(number: i32) -> ElementType {
        use ElementType::*;
        [U8, I8, I16, I32, I64, F32, F16, Bool][number as usize]
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Rust's types that tensors have. 16-bit floats and booleans are read as bytes (`Output::to_bytes`).
pub trait Element: Copy + sealed::Sealed {
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($rust:ty => $kind:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$kind;
        }
    )*};
}
elements!(u8 => U8, i8 => I8, i16 => I16, i32 => I32, i64 => I64, f32 => F32);

/// An input: contiguous elements that somebody else owns.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    tensor: ffi::Tensor,
    elements: PhantomData<&'a [u8]>,
}

impl<'a> Tensor<'a> {
    pub fn new<T: Element>(elements: &'a [T], shape: &[usize]) -> Result<Tensor<'a>, Error> {
        Tensor::over(elements.as_ptr().cast(), std::mem::size_of_val(elements), T::TYPE, shape)
    }

    /// From bytes, for types that Rust has not. They must lie on a boundary of an element.
    pub fn from_bytes(kind: ElementType, bytes: &'a [u8], shape: &[usize]) -> Result<Tensor<'a>, Error> {
        Tensor::over(bytes.as_ptr(), bytes.len(), kind, shape)
    }

    fn over(data: *const u8, bytes: usize, kind: ElementType, shape: &[usize]) -> Result<Tensor<'a>, Error> {
        if shape.len() > ffi::MAX_RANK {
            return Err(Error::argument(format!("a tensor has at most 8 axes, got {}", shape.len())));
        }
        let wanted = shape.iter().try_fold(kind.size(), |product, &n| product.checked_mul(n));
        if wanted != Some(bytes) {
            return Err(Error::argument(format!("the shape {shape:?} of {kind:?} is not that of {bytes} bytes")));
        }
        let mut sizes = [0; ffi::MAX_RANK];
        for (to, &n) in sizes.iter_mut().zip(shape) {
            *to = n as i64;
        }
        let (kind, rank) = (kind as i32, shape.len() as i32);
        let tensor =
            ffi::Tensor { data: data.cast_mut().cast(), bytes, kind, rank, sizes, strides: [0; ffi::MAX_RANK] };
        Ok(Tensor { tensor, elements: PhantomData })
    }
}

/// A result, in memory of its session.
pub struct Output<'s> {
    tensor: ffi::Tensor,
    session: PhantomData<&'s Session>,
}

impl Output<'_> {
    pub fn element_type(&self) -> ElementType {
        ElementType::of(self.tensor.kind)
    }

    pub fn shape(&self) -> Vec<usize> {
        self.tensor.sizes[..self.tensor.rank as usize].iter().map(|&n| n as usize).collect()
    }

    /// The elements in the order of the axes, whatever their order in memory.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        if T::TYPE != self.element_type() {
            return Err(Error::argument(format!(
                "the result has elements of {:?}, not {:?}",
                self.element_type(),
                T::TYPE
            )));
        }
        let mut made = Vec::with_capacity(self.shape().iter().product());
        // SAFETY: the library wrote an element of this type at each of these places, on its boundary.
        self.each(0, 0, &mut |at| made.push(unsafe { *self.tensor.data.cast::<T>().offset(at) }));
        Ok(made)
    }

    /// The same as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = self.element_type().size();
        let mut made = Vec::new();
        self.each(0, 0, &mut |at| {
            // SAFETY: as in to_vec.
            let element = unsafe { self.tensor.data.cast::<u8>().offset(at * size as isize) };
            made.extend_from_slice(unsafe { std::slice::from_raw_parts(element, size) });
        });
        made
    }

    /// Calls `visit` with the place of each element from `axis` on.
    fn each(&self, axis: usize, at: isize, visit: &mut impl FnMut(isize)) {
        if axis == self.tensor.rank as usize {
            return visit(at);
        }
        for i in 0..self.tensor.sizes[axis] {
            self.each(axis + 1, at + (i * self.tensor.strides[axis]) as isize, visit);
        }
    }
}

/// What a program takes.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    pub element_type: ElementType,
    /// `None` is free.
    pub sizes: Vec<Option<usize>>,
    /// The sizes the program was compiled with.
    pub example: Vec<usize>,
}

/// A program: read, checked, and packed for this CPU. Threads may share it.
pub struct Program {
    handle: *mut ffi::Program,
}

// SAFETY: zeropoint.h says that a program may be shared.
unsafe impl Send for Program {}
unsafe impl Sync for Program {}

impl Program {
    pub fn load(path: impl AsRef<Path>) -> Result<Program, Error> {
        let path = path.as_ref();
        let name = path.to_str().and_then(|name| CString::new(name).ok());
        let name =
            name.ok_or_else(|| Error::argument(format!("the path {path:?} is not UTF-8, or has a zero in it")))?;
        // SAFETY: the string lives until the call is over.
        Program::made(|made| unsafe { ffi::zp_program_load(name.as_ptr(), ptr::null(), made) })
    }

    /// From the bytes of a file, which are copied.
    pub fn from_bytes(file: &[u8]) -> Result<Program, Error> {
        // SAFETY: so many bytes can be read.
        Program::made(|made| unsafe {
            ffi::zp_program_load_memory(file.as_ptr().cast(), file.len(), ptr::null(), made)
        })
    }

    /// As `from_bytes`; the values of one run may take so many bytes.
    pub fn with_memory_limit(file: &[u8], memory_limit: i64) -> Result<Program, Error> {
        let options = ffi::Options { memory_limit, reserved: [0; 7] };
        // SAFETY: as in from_bytes; the options live until the call is over.
        Program::made(|made| unsafe { ffi::zp_program_load_memory(file.as_ptr().cast(), file.len(), &options, made) })
    }

    fn made(load: impl FnOnce(*mut *mut ffi::Program) -> c_int) -> Result<Program, Error> {
        // SAFETY: takes nothing.
        let version = unsafe { ffi::zp_abi_version() };
        if version != ffi::ABI_VERSION {
            let message =
                format!("libzeropoint has the binary interface {version}, this crate needs {}", ffi::ABI_VERSION);
            return Err(Error { status: Status::Internal, message });
        }
        let mut handle = ptr::null_mut();
        check(load(&mut handle))?;
        Ok(Program { handle })
    }

    pub fn inputs(&self) -> Result<Vec<Input>, Error> {
        // SAFETY: the handle is one until drop, and the strings live as long.
        let count = unsafe { ffi::zp_program_input_count(self.handle) };
        (0..count)
            .map(|index| {
                let (sizes, axes) = ([0; ffi::MAX_RANK], [ptr::null(); ffi::MAX_RANK]);
                let mut input = ffi::Input { name: ptr::null(), kind: 0, rank: 0, sizes, example: sizes, axes };
                check(unsafe { ffi::zp_program_input(self.handle, index, &mut input) })?;
                let rank = input.rank as usize;
                Ok(Input {
                    name: unsafe { text(input.name) },
                    element_type: ElementType::of(input.kind),
                    sizes: input.sizes[..rank].iter().map(|&n| usize::try_from(n).ok()).collect(),
                    example: input.example[..rank].iter().map(|&n| n as usize).collect(),
                })
            })
            .collect()
    }

    /// How the outputs make up what the model returned, as JSON; empty if it is one tensor.
    pub fn result(&self) -> String {
        // SAFETY: as in inputs.
        unsafe { text(ffi::zp_program_result(self.handle)) }
    }

    /// What runs it: one for each thread. It may outlive the program.
    pub fn session(&self) -> Result<Session, Error> {
        let mut handle = ptr::null_mut();
        // SAFETY: as in inputs.
        check(unsafe { ffi::zp_session_create(self.handle, &mut handle) })?;
        Ok(Session { handle, output_count: unsafe { ffi::zp_program_output_count(self.handle) } })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { ffi::zp_program_free(self.handle) }
    }
}

/// Runs a program, and keeps its state (a decoder's cache, say) from run to run.
pub struct Session {
    handle: *mut ffi::Session,
    output_count: usize,
}

// SAFETY: a session belongs to one thread at a time, which `&mut` says.
unsafe impl Send for Session {}

impl Session {
    /// The results are those of the last run, so they are let go before the next.
    pub fn run(&mut self, inputs: &[Tensor<'_>]) -> Result<Vec<Output<'_>>, Error> {
        let given: Vec<ffi::Tensor> = inputs.iter().map(|input| input.tensor).collect();
        let (sizes, data) = ([0; ffi::MAX_RANK], ptr::null_mut());
        let empty = ffi::Tensor { data, bytes: 0, kind: 0, rank: 0, sizes, strides: sizes };
        let mut made = vec![empty; self.output_count];
        // SAFETY: the library reads the inputs and nothing behind them, and writes so many outputs into its own memory.
        check(unsafe { ffi::zp_session_run(self.handle, given.as_ptr(), given.len(), made.as_mut_ptr(), made.len()) })?;
        Ok(made.into_iter().map(|tensor| Output { tensor, session: PhantomData }).collect())
    }

    /// Gives the state its first values again.
    pub fn reset(&mut self) -> Result<(), Error> {
        // SAFETY: the handle is one until drop.
        check(unsafe { ffi::zp_session_reset(self.handle) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { ffi::zp_session_free(self.handle) }
    }
}

/// Of the C library.
pub fn version() -> String {
    // SAFETY: a constant.
    unsafe { text(ffi::zp_version()) }
}

/// "avx2", "vnni", ...: the instruction set the kernels use.
pub fn instruction_set() -> String {
    // SAFETY: a constant.
    unsafe { text(ffi::zp_isa()) }
}

/// Threads that all runs of the process share.
pub fn num_threads() -> usize {
    // SAFETY: takes nothing.
    unsafe { ffi::zp_num_threads() as usize }
}

pub fn set_num_threads(threads: usize) -> Result<(), Error> {
    // SAFETY: any number may be asked for.
    check(unsafe { ffi::zp_set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX)) })
}
