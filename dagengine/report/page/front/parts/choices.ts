// Which key gives which answer.

/** A key for each choice ("" where there is none left), and the one for "cannot tell". */
export function choiceKeys(choices: string[]): { of: string[]; cannot: string } {
  // A scale of numbers is answered with the number itself, 10 with x; yes and no by y and n.
  if (choices.length > 0 && choices.every((choice) => /^\d+$/.test(choice))) {
    const of = choices.map((choice) => (choice.length === 1 ? choice : choice === "10" ? "x" : ""));
    return { of, cannot: of.includes("0") ? "." : "0" };
  }
  const words = choices.map((choice) => (/^(true|yes|it passes)$/i.test(choice) ? "y" : /^(false|no|it fails)$/i.test(choice) ? "n" : ""));
  if (words.length === 2 && words.includes("y") && words.includes("n")) return { of: words, cannot: "0" };
  return { of: choices.map((_, i) => (i < 9 ? String(i + 1) : "")), cannot: "0" };
}
