//! run MODEL.zpt FILE...: any program, once. Each FILE has the bytes of one input, of the sizes the program was compiled
//! for; the bytes of the results go to standard output.

use std::error::Error;
use std::io::Write;
use std::{env, fs};

use zeropoint::{Program, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let program = Program::load(words.next().ok_or("usage: run MODEL.zpt FILE... > results")?)?;
    let inputs = program.inputs()?;
    let files = words.map(fs::read).collect::<Result<Vec<_>, _>>()?;
    if files.len() != inputs.len() {
        return Err(format!("the program takes {} inputs, got {} files", inputs.len(), files.len()).into());
    }
    // Words of 8 bytes lie on every boundary.
    let words: Vec<Vec<u64>> = files.iter().map(|file| words_of(file)).collect();
    let mut tensors = Vec::new();
    for ((input, file), words) in inputs.iter().zip(&files).zip(&words) {
        // SAFETY: the words have at least so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), file.len()) };
        tensors.push(Tensor::from_bytes(input.element_type, bytes, &input.example)?);
    }
    for output in program.session()?.run(&tensors)? {
        std::io::stdout().write_all(&output.to_bytes())?;
    }
    Ok(())
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let whole = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(whole).collect()
}
