// Questions in whole words. The theme searches for everything that begins like a word of the
// question, so "a" finds "arena". A word with a boost of 1 is taken as a word: small words are
// left out, and others are found in all their forms. Only the last word may still be unfinished.
{
  const send = Worker.prototype.postMessage
  const QUERY = 2
  Worker.prototype.postMessage = function (message, ...others) {
    if (message?.type === QUERY && !/["+~^*]/.test(message.data)) {
      const words = message.data.trim().split(/\s+/)
      const asked = words.map((word, n) => {
        // Ctrl-C is one word of the index, but its dash would part the word of a question.
        if (/^ctrl-./i.test(word)) return "ctrl*"
        return n < words.length - 1 || /\W$/.test(word) ? `${word}^1` : word
      })
      message = {...message, data: asked.join(" ")}
    }
    return send.call(this, message, ...others)
  }
}
