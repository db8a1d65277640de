//! A language model that knows one answer.

use std::time::Duration;

use futures::Stream;
use futures::stream;

/// From "Through the Looking-Glass" by Lewis Carroll.
const TEXT: &str = "
    'When I use a word,' Humpty Dumpty said in rather a scornful tone, 'it means just what I choose it to mean, neither more
    nor less.' 'The question is,' said Alice, 'whether you can make words mean so many different things.' 'The question is,'
    said Humpty Dumpty, 'which is to be master, that's all.' Alice was too much puzzled to say anything, so after a minute
    Humpty Dumpty began again. 'They've a temper, some of them, particularly verbs, they're the proudest. Adjectives you can
    do anything with, but not verbs. However, I can manage the whole lot of them! Impenetrability! That's what I say!' 'Would
    you tell me, please,' said Alice, 'what that means?' 'Now you talk like a reasonable child,' said Humpty Dumpty, looking
    very much pleased. 'I meant by impenetrability that we've had enough of that subject.'";

/// The number of tokens of the whole answer.
pub fn length() -> usize {
    TEXT.split_whitespace().count()
}

/// The answer, token by token, at most `most` of them. Each takes `time`.
pub(crate) fn answer(most: usize, time: Duration) -> impl Stream<Item = &'static str> + Send {
    stream::unfold(TEXT.split_whitespace().take(most), move |mut tokens| async move {
        let token = tokens.next()?;
        tokio::time::sleep(time).await;
        Some((token, tokens))
    })
}
