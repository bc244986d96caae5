//! Parses the drbd.conf syntax that `drbdsetup show` prints: `words;` and `words { … }`, `#` comments.

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) words: Vec<String>,
    /// The entries in braces; empty for a line that ends with a semicolon.
    pub(super) children: Vec<Entry>,
}

impl Entry {
    pub(super) fn is(&self, name: &str) -> bool {
        self.words.first().is_some_and(|word| word == name)
    }

    /// Returns the word after the name.
    pub(super) fn value(&self) -> Option<&str> {
        self.words.get(1).map(String::as_str)
    }

    pub(super) fn leaf(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|e| e.is(name)).and_then(Entry::value)
    }
}

/// Parses the entries; unbalanced braces end at the end of the text.
pub(super) fn entries(text: &str) -> Vec<Entry> {
    // The innermost section is last; the first is the top level.
    let mut open = vec![Entry::default()];
    let mut words = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Word(word) => words.push(word),
            Token::Open => open.push(Entry { words: std::mem::take(&mut words), children: vec![] }),
            Token::End => {
                let words = std::mem::take(&mut words);
                if let Some(section) = open.last_mut().filter(|_| !words.is_empty()) {
                    section.children.push(Entry { words, children: Vec::new() });
                }
            }
            Token::Close => close(&mut open),
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.pop().map(|root| root.children).unwrap_or_default()
}

fn close(open: &mut Vec<Entry>) {
    if open.len() > 1
        && let Some(closed) = open.pop()
        && let Some(outer) = open.last_mut()
    {
        outer.children.push(closed);
    }
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut all = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' => all.push(Token::Open),
            '}' => all.push(Token::Close),
            ';' => all.push(Token::End),
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                let mut word = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    // A backslash escapes the next character.
                    let plain = if c == '\\' { chars.next() } else { Some(c) };
                    word.extend(plain);
                }
                all.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                let is_word_char = |c: &char| !c.is_whitespace() && !"{};\"#".contains(*c);
                while let Some(c) = chars.next_if(is_word_char) {
                    word.push(c);
                }
                all.push(Token::Word(word));
            }
        }
    }
    all
}
