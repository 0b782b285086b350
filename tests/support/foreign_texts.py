"""Texts in German and French, written for this project, and windows of texts of any kind."""

import unicodedata

import numpy as np

GERMAN = """Am Morgen lag der Nebel noch über dem Fluss, und die Fähre war nirgends zu sehen. Der alte Müller stand am
Ufer, zog seine Mütze tiefer in die Stirn und wartete. Er hatte es nicht eilig. Seit vierzig Jahren brachte er das
Mehl in die Stadt, und in all den Jahren war die Fähre nie pünktlich gewesen. Warum sollte sie es gerade heute sein?
Ein Junge kam den Weg herunter, barfuß, mit einem Korb voller Äpfel. Er fragte, ob das Wasser tief sei. Tief genug,
antwortete der Müller, und kalt dazu. Wer hinüber will, muss warten können. Der Junge setzte sich auf einen Stein und
begann, einen Apfel zu schälen. Die Schale fiel in einem langen Band ins Gras. Nach einer Weile hörten sie das Knarren
des Seils, und aus dem Nebel trat langsam das Boot hervor. Der Fährmann grüßte nicht. Er sprach selten, und wenn er
sprach, dann über das Wetter oder über den Preis der Fische. Sie stiegen ein, zuerst der Junge, dann der Müller mit
seinen Säcken. Das Boot lag nun tief, und das Wasser leckte an den Brettern. In der Mitte des Flusses hielt der
Fährmann inne und hob den Kopf. Hört ihr das, fragte er. Weit oben, wo der Fluss aus den Bergen kommt, läuteten die
Glocken. Es war kein Sonntag, und es brannte auch nirgends. Jemand heiratet, sagte der Junge. Jemand ist gestorben,
sagte der Müller. Der Fährmann zuckte mit den Schultern, legte beide Hände an das Seil und zog weiter, bis der Kiel
auf dem Sand der anderen Seite knirschte. Dort verkaufte der Junge seine Äpfel, alle bis auf einen, den er dem
Fährmann für den Rückweg schenkte.
"""
FRENCH = """Le soir, quand les élèves étaient partis, la maîtresse restait seule dans la classe et regardait par la
fenêtre. La cour était vide. Un ballon oublié roulait doucement contre le mur, poussé par le vent. Elle pensait à son
enfance, à la maison près de la forêt, où l'hiver durait si longtemps que personne ne croyait plus au retour des
beaux jours. Son père réparait des horloges. Il y en avait partout, dans la cuisine, dans l'escalier, même au grenier,
et aucune ne donnait la même heure. Il disait que le temps n'était pas pressé et qu'il fallait lui laisser le choix.
Sa mère, elle, n'aimait pas ce bruit. Elle sortait dès qu'elle le pouvait, un panier au bras, et revenait avec des
champignons, des mûres ou du bois mort. Un jour, un voyageur s'arrêta devant la porte. Il avait perdu sa montre dans
la rivière et voulait en acheter une autre. Le père lui montra toutes celles qu'il possédait. L'homme les écouta
l'une après l'autre, les yeux fermés, puis il choisit la plus petite, qui avançait de dix minutes. Pourquoi celle-là,
demanda le père. Parce que je suis toujours en retard, répondit l'étranger. Il paya, remercia et reprit sa route. On
ne le revit jamais, mais chaque année, au printemps, une lettre arrivait d'un pays lointain, sans adresse, avec un
seul mot : merci. La maîtresse sourit, ferma la fenêtre, éteignit la lampe et descendit l'escalier. Dehors, la première
étoile brillait déjà au-dessus des toits.
"""


def draw_windows(text: str, count: int, length: int, seed: int) -> list[str]:
    """Draw stretches of a text that begin anywhere."""
    starts = np.random.default_rng(seed).integers(0, len(text) - length + 1, count)
    return [text[start : start + length] for start in starts.tolist()]


def list_windows(text: str, length: int, offset: int = 0) -> list[str]:
    """Return the stretches of a text, one after the other, from an offset on."""
    return [text[start : start + length] for start in range(offset, len(text) - length + 1, length)]


def spell_in_ascii(text: str) -> str:
    """Return a text without accents and umlauts, and with ss for the letter that has no capital."""
    plain = unicodedata.normalize("NFKD", text.replace("\u00df", "ss"))
    return "".join(letter for letter in plain if letter.isascii())
